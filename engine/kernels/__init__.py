"""C++ kernels for the CPU: compiled here on first use, checked before they are trusted."""

"""What a model's files give, GGUF or Hugging Face: sizes, tensors and names."""

"""Vocabularies of model files, whatever they are written in, as the tokenizer needs them."""

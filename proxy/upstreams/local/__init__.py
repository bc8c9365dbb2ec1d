"""The bundled engine as an upstream: OpenAI's wire format outside, the engine's messages inside."""

"""LiteLLM's config as one of ours; `proxy.commands.import_litellm` is its only caller.

    section ──> source ──> deployments ──┬──> upstreams ──> routes ──┐
                   └───────────────> caching ────────────────────────┴──> translation ──> document

Reading order is that of the arrows. Nothing here reads files or the environment.
"""

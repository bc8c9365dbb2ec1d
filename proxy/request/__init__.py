"""What was asked: decoded, keyed, tagged and judged. Pure."""

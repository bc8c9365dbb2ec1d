"""What came back: streams parsed, judged, recorded and given again. Pure."""

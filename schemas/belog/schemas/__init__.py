"""The events, their state diagrams, the fold and the codecs. No socket, file, clock or random."""

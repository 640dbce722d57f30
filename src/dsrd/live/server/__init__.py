"""The server: an engine over HTTP. `app` has its endpoints, `guard` what comes before, `serving` the process."""

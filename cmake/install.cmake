# `cmake --install`: filled in by the packaging change.

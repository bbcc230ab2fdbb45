/* A library that has a function of its own, of a name that the C library has too. */
int truncate(const char* path, long length) {
  (void)path;
  return (int)length + 7;
}

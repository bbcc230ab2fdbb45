// Reads that have, by design, no order with what other threads store.
#pragma once

#ifdef __SANITIZE_THREAD__
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}
#endif

namespace perdure {

/// While one lives, the thread sanitizer does not look at what this thread reads. (A suppression
/// would do as well, but each race that it suppresses is described first, which takes it some 0.1
/// ms.) Without that sanitizer it is nothing.
class UnorderedReads {
 public:
#ifdef __SANITIZE_THREAD__
  UnorderedReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~UnorderedReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
#else
  UnorderedReads() {}
  ~UnorderedReads() {}
#endif
  UnorderedReads(const UnorderedReads&) = delete;
  UnorderedReads& operator=(const UnorderedReads&) = delete;
};

}  // namespace perdure

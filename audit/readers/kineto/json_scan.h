// JSON out of a window of a stream, fast: strings and nested values are passed 16 bytes at a time.
// What is skipped is checked for its brackets and strings alone, so that a scan never leaves the
// window and never goes deeper than kMostDepth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace plumbline::audit {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Not thread-safe. The window ends with a NUL at `end` and 16 readable bytes from there on. After
// the first failure every call returns false.
class JsonScan {
 public:
  static constexpr int kMostDepth = 64;
  static constexpr size_t kPadding = 16;  // readable bytes from the end on

  JsonScan(const char* at, const char* end) : at_(at), end_(end) {}

  const char* at() const { return at_; }
  bool failed() const { return expected_ != nullptr; }
  const char* expected() const { return expected_; }
  // The window ended where more was expected: more bytes may mend it.
  bool cut() const { return failed() && at_ == end_; }

  char Peek() {  // the next byte that is no space; NUL at the end
    Space();
    return *at_;
  }
  bool Take(char c, const char* expected);  // past it and the spaces before it
  // Members of an object whose '{' was taken: true with the key, the value follows; false past the
  // '}'. `*first` is true before the first call.
  bool NextMember(bool* first, std::string_view* key);
  // The same of a list.
  bool NextElement(bool* first);
  // A string, its escapes as they are.
  bool String(std::string_view* raw);
  // A number, word or string as it is written, a string without its quotes.
  bool Scalar(std::string_view* raw);
  bool Skip();

  bool Fail(const char* expected) {
    if (expected_ == nullptr) expected_ = expected;
    return false;
  }

 private:
  void Space() {
    while (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t') ++at_;
  }
  bool NextOf(bool* first, char bracket, const char* expected);
  bool SkipNested();

  const char* at_;
  const char* end_;
  const char* expected_ = nullptr;
};

// Microseconds as written to nanoseconds, exactly: digits beyond the third decimal are dropped.
// False: no number, or beyond +-2^61 ns.
bool NanosecondsOf(std::string_view microseconds, int64_t* ns);

// A whole number, no more. False: anything else, or too large.
bool WholeOf(std::string_view text, int64_t* value);

}  // namespace plumbline::audit

// Scans JSON in a window of a stream. Skips strings and nested values 16 bytes at a time. In
// skipped values, checks only brackets and strings, so that a scan never leaves the window and
// never goes deeper than kMostDepth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace plumbline::audit {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Not thread-safe. The window ends with a NUL at `end`, and 16 bytes are readable from there on.
// After the first failure every call returns false.
class JsonScan {
 public:
  static constexpr int kMostDepth = 64;
  static constexpr size_t kPadding = 16;  // readable bytes from `end` on

  JsonScan(const char* at, const char* end) : at_(at), end_(end) {}

  const char* at() const { return at_; }
  bool failed() const { return expected_ != nullptr; }
  const char* expected() const { return expected_; }
  // Returns true if the window ended where more was expected: more bytes may complete it.
  bool cut() const { return failed() && at_ == end_; }

  char Peek() {  // returns the next non-space byte; NUL at the end
    Space();
    return *at_;
  }
  bool Take(char c, const char* expected);  // skips spaces and `c`
  // Iterates over the members of an object whose '{' was taken. Returns true with the key, and the
  // value follows; returns false after the '}'. `*first` is true before the first call.
  bool NextMember(bool* first, std::string_view* key);
  // The same for a list.
  bool NextElement(bool* first);
  // Reads a string without decoding its escapes.
  bool String(std::string_view* raw);
  // Reads a number, word or string as written, a string without its quotes.
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

// Converts microseconds as written to nanoseconds, exactly: digits after the third decimal are
// dropped. Returns false if it is not a number, or exceeds +-2^61 ns.
bool NanosecondsOf(std::string_view microseconds, int64_t* ns);

// Parses an integer. Returns false for anything else, or if it is too large.
bool WholeOf(std::string_view text, int64_t* value);

}  // namespace plumbline::audit

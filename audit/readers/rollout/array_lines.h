// Reads a JSON array of records, or one record that is printed over several lines, as lines.
#pragma once

#include <cstddef>

namespace plumbline::audit {

// Makes each element of a JSON array a line of its own, in place and byte by byte, so that offsets
// are unchanged: the brackets and the newlines of the array become spaces, the commas between its
// elements newlines. Element N is line N. An array of arrays of records is read like one array. If
// a text begins with `{` and a newline, the newlines within its objects become spaces. Any other
// text is unchanged. Pass the bytes of one file in their order, in pieces of any size. Not
// thread-safe.
class ArrayLines {
 public:
  void Rewrite(char* data, size_t size);

 private:
  // kBrace: the text begins with `{`, and only spaces came since.
  enum class Text { kUnknown, kArray, kBrace, kObject, kOther };

  void Begin(char c);
  char Rewritten(char c);

  Text text_ = Text::kUnknown;
  size_t depth_ = 0;   // open brackets and braces
  size_t arrays_ = 0;  // depth between the records: 1, or 2 in an array of arrays; 0 in an object
  bool first_ = true;  // no record of the array has begun
  bool quoted_ = false, escaped_ = false;
};

}  // namespace plumbline::audit

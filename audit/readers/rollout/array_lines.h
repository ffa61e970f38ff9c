// Reads a JSON array of records as lines.
#pragma once

#include <cstddef>

namespace plumbline::audit {

// Makes each element of a JSON array a line of its own, in place and byte by byte, so that offsets
// are unchanged: the brackets and the newlines of the array become spaces, the commas between its
// elements newlines. Element N is line N. Text that does not begin with `[` is unchanged. Pass the
// bytes of one file in their order, in pieces of any size. Not thread-safe.
class ArrayLines {
 public:
  void Rewrite(char* data, size_t size);

 private:
  enum class Text { kUnknown, kArray, kOther };

  char Rewritten(char c);

  Text text_ = Text::kUnknown;
  size_t depth_ = 0;  // open brackets and braces; 1: between the elements
  bool quoted_ = false, escaped_ = false;
};

}  // namespace plumbline::audit

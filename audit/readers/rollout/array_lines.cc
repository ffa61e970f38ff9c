#include "audit/readers/rollout/array_lines.h"

#include <string_view>

namespace plumbline::audit {
namespace {

constexpr std::string_view kBeforeText = " \t\r\n\xEF\xBB\xBF";

}  // namespace

void ArrayLines::Rewrite(char* data, size_t size) {
  for (size_t i = 0; i < size && text_ != Text::kOther; ++i) {
    if (text_ == Text::kUnknown && kBeforeText.find(data[i]) == kBeforeText.npos)
      text_ = data[i] == '[' ? Text::kArray : Text::kOther;
    if (text_ == Text::kArray) data[i] = Rewritten(data[i]);
  }
}

char ArrayLines::Rewritten(char c) {
  if (quoted_) {
    quoted_ = escaped_ || c != '"';
    escaped_ = !escaped_ && c == '\\';
    return c;
  }
  switch (c) {
    case '"':
      quoted_ = true;
      return c;
    case '[':
    case '{':
      return ++depth_ == 1 ? ' ' : c;
    case ']':
    case '}':
      if (--depth_ > 0) return c;
      text_ = Text::kUnknown;
      return '\n';
    case ',':
      return depth_ == 1 ? '\n' : c;
    case '\n':
      return depth_ == 0 ? c : ' ';
    default:
      return c;
  }
}

}  // namespace plumbline::audit

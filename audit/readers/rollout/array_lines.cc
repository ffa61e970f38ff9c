#include "audit/readers/rollout/array_lines.h"

#include <algorithm>
#include <string_view>

namespace plumbline::audit {
namespace {

constexpr std::string_view kBeforeText = " \t\r\n\xEF\xBB\xBF";

}  // namespace

void ArrayLines::Rewrite(char* data, size_t size) {
  for (size_t i = 0; i < size && text_ != Text::kOther; ++i) {
    if (text_ == Text::kUnknown || text_ == Text::kBrace) Begin(data[i]);
    if (text_ == Text::kArray || text_ == Text::kObject) data[i] = Rewritten(data[i]);
  }
}

// Finds the kind of a text by its first bytes.
void ArrayLines::Begin(char c) {
  if (text_ == Text::kBrace) {
    if (c == ' ' || c == '\t' || c == '\r') return;
    text_ = c == '\n' ? Text::kObject : Text::kOther;
    depth_ = 1;
    return;
  }
  if (kBeforeText.find(c) != kBeforeText.npos) return;
  text_ = c == '[' ? Text::kArray : c == '{' ? Text::kBrace : Text::kOther;
  arrays_ = depth_ = 0;
  first_ = true;
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
      ++depth_;
      if (text_ != Text::kArray || (!first_ && depth_ > arrays_) || depth_ > 2) return c;
      arrays_ = std::max(arrays_, depth_);
      return ' ';
    case '{':
      first_ = false;
      ++depth_;
      return c;
    case ']':
    case '}':
      if (--depth_ == 0) text_ = Text::kUnknown;
      if (depth_ == 0 && arrays_ > 0) return '\n';
      return depth_ < arrays_ ? ' ' : c;
    case ',':
      return depth_ <= arrays_ ? '\n' : c;
    case '\n':
      return depth_ == 0 ? c : ' ';
    default:
      return c;
  }
}

}  // namespace plumbline::audit

#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {
namespace {

constexpr int kMostDepth = 512;
bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool IsLetter(char c) { return static_cast<unsigned char>((c | 0x20) - 'a') < 26; }

// Returns true for words that Python, C, Java and others write for values that JSON cannot hold.
bool IsKnownWord(std::string_view word) {
  if (word == "None") return true;
  if (word.starts_with('-') || word.starts_with('+')) word.remove_prefix(1);
  std::string lower(word);
  for (char& c : lower) c = static_cast<char>(c | 0x20);
  return lower == "nan" || lower == "inf" || lower == "infinity";
}

void AppendUtf8(uint32_t code, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | ((code >> shift) & 0x3F)));
  };
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (code >> 6)));
    tail(0);
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (code >> 12)));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | (code >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace

bool JsonCursor::Fail(const char* expected) {
  if (expected_ == nullptr) expected_ = expected;
  return false;
}

void JsonCursor::Space() {
  while (at_ != end_ && IsSpace(*at_)) ++at_;
}

bool JsonCursor::StartsNumber() const {
  if (at_ == end_) return false;
  return IsDigit(*at_) || (*at_ == '-' && end_ - at_ > 1 && IsDigit(at_[1]));
}

JsonCursor::Kind JsonCursor::Peek() {
  if (failed()) return Kind::kNone;
  Space();
  if (at_ == end_) return Kind::kNone;
  const std::string_view rest(at_, static_cast<size_t>(end_ - at_));
  switch (*at_) {
    case '{':
      return Kind::kObject;
    case '[':
      return Kind::kList;
    case '"':
      return Kind::kString;
    default:
      if (StartsNumber()) return Kind::kNumber;
      if (rest.starts_with("true")) return Kind::kTrue;
      if (rest.starts_with("false")) return Kind::kFalse;
      if (rest.starts_with("null")) return Kind::kNull;
      return IsLetter(*at_) || *at_ == '-' || *at_ == '+' ? Kind::kWord : Kind::kNone;
  }
}

bool JsonCursor::Enter(char bracket, const char* expected) {
  if (failed()) return false;
  Space();
  if (at_ == end_ || *at_ != bracket) return Fail(expected);
  ++at_;
  first_ = true;
  return true;
}

bool JsonCursor::NextOf(char bracket, const char* expected) {
  if (failed()) return false;
  Space();
  const bool first = first_;
  first_ = false;
  if (at_ != end_ && *at_ == bracket) {
    ++at_;
    return false;
  }
  if (first) return true;
  if (at_ == end_ || *at_ != ',') return Fail(expected);
  ++at_;
  Space();
  return true;
}

bool JsonCursor::EnterObject() { return Enter('{', "'{'"); }
bool JsonCursor::EnterList() { return Enter('[', "'['"); }
bool JsonCursor::NextElement() { return NextOf(']', "',' or ']'"); }

bool JsonCursor::NextMember(std::string_view* key) {
  if (!NextOf('}', "',' or '}'")) return false;
  if (at_ == end_ || *at_ != '"') return Fail("a key in quotes");
  // Fast path: most keys have no escapes and are returned in place.
  const char* start = at_ + 1;
  const char* p = start;
  while (p != end_ && *p != '"' && *p != '\\' && static_cast<unsigned char>(*p) >= 0x20) ++p;
  if (p != end_ && *p == '"') {
    *key = std::string_view(start, static_cast<size_t>(p - start));
    at_ = p + 1;
  } else {
    if (!ReadString(&key_)) return false;
    *key = key_;
  }
  Space();
  if (at_ == end_ || *at_ != ':') return Fail("':'");
  ++at_;
  return true;
}

bool JsonCursor::SkipString() {
  for (const char* p = at_ + 1;; ++p) {
    while (p != end_ && *p != '"' && *p != '\\' && static_cast<unsigned char>(*p) >= 0x20) ++p;
    at_ = p;
    if (p == end_) return Fail("the string's closing quote");
    if (*p == '"') break;
    if (*p != '\\') return Fail("a control character as an escape");
    if (!Escape(nullptr)) return false;
    p = at_ - 1;
  }
  ++at_;
  return true;
}

bool JsonCursor::HexQuad(uint32_t* unit) {
  *unit = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    if (at_ == end_) return Fail("four hexadecimal digits");
    const char c = static_cast<char>(*at_ | 0x20);
    const int digit = IsDigit(*at_) ? *at_ - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return Fail("four hexadecimal digits");
    *unit = *unit * 16 + static_cast<uint32_t>(digit);
  }
  return true;
}

// Reads an escape at a backslash. A lone surrogate, which is no character, becomes U+FFFD.
bool JsonCursor::Escape(std::string* out) {
  if (++at_ == end_) return Fail("an escaped character");
  static constexpr std::string_view kLetters = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
  if (*at_ != 'u') {
    const size_t i = kLetters.find(*at_);
    if (i == std::string_view::npos) return Fail("an escaped character");
    ++at_;
    if (out != nullptr) out->push_back(kMeant[i]);
    return true;
  }
  ++at_;
  uint32_t code = 0;
  if (!HexQuad(&code)) return false;
  const bool high = code >= 0xD800 && code < 0xDC00;
  if (high && end_ - at_ >= 2 && at_[0] == '\\' && at_[1] == 'u') {
    const char* back = at_;
    at_ += 2;
    uint32_t low = 0;
    if (!HexQuad(&low)) return false;
    if (low >= 0xDC00 && low < 0xE000) {
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else {
      at_ = back;
    }
  }
  if (code >= 0xD800 && code < 0xE000) code = 0xFFFD;
  if (out != nullptr) AppendUtf8(code, out);
  return true;
}

bool JsonCursor::ReadString(std::string* out) {
  if (failed()) return false;
  Space();
  if (at_ == end_ || *at_ != '"') return Fail("a string");
  const char* start = at_;
  if (!SkipString()) return false;
  const char* stop = at_;
  out->clear();
  for (at_ = start + 1; at_ != stop - 1;) {
    if (*at_ != '\\') {
      out->push_back(*at_++);
    } else {
      Escape(out);
    }
  }
  if (!IsUtf8(*out)) {
    at_ = start;
    return Fail("a string of UTF-8");
  }
  at_ = stop;
  return true;
}

bool JsonCursor::SkipScalar() {
  switch (Peek()) {
    case Kind::kString:
      return SkipString();
    case Kind::kNumber: {
      double ignored = 0;
      NumberText text;
      return Number(&ignored, &text);
    }
    case Kind::kTrue:
    case Kind::kNull:
      at_ += 4;
      return true;
    case Kind::kFalse:
      at_ += 5;
      return true;
    case Kind::kWord: {
      const char* p = at_ + 1;
      while (p != end_ && IsLetter(*p)) ++p;
      if (p == end_) {  // the text may end within a word
        at_ = p;
        return Fail("a value");
      }
      if (!IsKnownWord({at_, static_cast<size_t>(p - at_)})) return Fail("a value");
      at_ = p;
      return true;
    }
    default:
      return Fail("a value");
  }
}

bool JsonCursor::Skip() {
  std::string open;  // closing brackets of all open containers
  std::string_view key;
  do {
    const Kind kind = Peek();
    if (kind == Kind::kObject || kind == Kind::kList) {
      if (open.size() == kMostDepth) return Fail("at most 512 levels");
      open.push_back(kind == Kind::kObject ? '}' : ']');
      ++at_;
      first_ = true;
    } else if (!SkipScalar()) {
      return false;
    }
    while (!open.empty()) {
      if (open.back() == '}' ? NextMember(&key) : NextElement()) break;
      if (failed()) return false;
      open.pop_back();
    }
  } while (!open.empty());
  return true;
}

void JsonCursor::SkipComma() {
  Space();
  if (!failed() && at_ != end_ && *at_ == ',') ++at_;
}

bool JsonCursor::AtEnd() {
  if (failed()) return false;
  Space();
  return at_ == end_ || Fail("nothing more");
}

bool IsUtf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char* end = p + text.size();
  while (p != end) {
    const unsigned char lead = *p++;
    if (lead < 0x80) continue;
    const int tail = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || end - p < tail) return false;
    const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (*p < low || *p > high) return false;
    for (int i = 1; i < tail; ++i) {
      if ((p[i] & 0xC0) != 0x80) return false;
    }
    p += tail;
  }
  return true;
}

}  // namespace plumbline::audit

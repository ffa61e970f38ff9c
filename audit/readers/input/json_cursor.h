// Reads a strict JSON text from front to back without building a tree. After an error it has the
// offset and the expected content. Reads lists of numbers, which are most of a rollout record,
// directly into vectors.
//
// Bare words that JSON writers use for values that JSON cannot hold (NaN, Infinity, nan, inf, -inf,
// None) are accepted as values of kind kWord, so that the caller can report their place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

inline bool IsDigit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// The format of the numbers in a list.
struct NumberText {
  int decimals = 0;   // most digits after the point, minus the exponent
  bool full = false;  // some value has 15 significant digits or more, as a double printed in full

  friend bool operator==(const NumberText&, const NumberText&) = default;
};

// An element of a list that is not a number, or not an integer if integers were requested.
struct OddElement {
  size_t index = 0;
  size_t offset = 0;  // offset in the text, in bytes
};

// Not thread-safe. The text must outlive the cursor. After the first failure every call returns
// false and changes nothing.
class JsonCursor {
 public:
  enum class Kind { kObject, kList, kString, kNumber, kTrue, kFalse, kNull, kWord, kNone };

  explicit JsonCursor(std::string_view text)
      : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()) {}

  bool failed() const { return expected_ != nullptr; }
  const char* expected() const { return expected_; }  // after a failure: "',' or ']'"
  size_t offset() const {
    return static_cast<size_t>(at_ - begin_);
  }  // after a failure: of the
     // failure
  // Returns true if the text ended where more was expected, so it may be truncated.
  bool cut() const { return failed() && at_ == end_; }

  // Returns the kind of the next value from its first character; kNone if no value begins there.
  // Skips spaces.
  Kind Peek();

  // To read { "key": value, ... }, call EnterObject, then NextMember for each member. After each
  // NextMember, read or skip the value. NextMember returns false at the end and on failure. Keys
  // are unescaped, and valid until the next call.
  bool EnterObject();
  bool NextMember(std::string_view* key);
  // The same for a list: [ value, ... ].
  bool EnterList();
  bool NextElement();

  // Skips any value and checks its grammar.
  bool Skip();
  bool ReadString(std::string* out);  // Unescapes the string. Fails if it is not UTF-8.
  bool ReadNumber(double* out, NumberText* text);

  // Appends a whole list. An element that is not a number, including a nested list or object,
  // becomes NaN (or kNoInteger) and is noted in `odd`. The list's grammar is still checked.
  bool ReadNumbers(std::vector<double>* out, NumberText* text, std::vector<OddElement>* odd);
  bool ReadIntegers(std::vector<int64_t>* out, std::vector<OddElement>* odd);
  // Reads a list of true, false and numbers. Appends 0 for false and 0, else 1.
  bool ReadFlags(std::vector<uint8_t>* out, std::vector<OddElement>* odd);

  // Skips spaces and a comma between values outside of a list.
  void SkipComma();

  // Returns true if only spaces follow.
  bool AtEnd();

  static constexpr int64_t kNoInteger = INT64_MIN;

 private:
  bool Fail(const char* expected);
  void Space();
  bool Enter(char bracket, const char* expected);
  // Skips a comma. If the closing bracket comes, skips it and returns false.
  bool NextOf(char bracket, const char* expected);
  bool SkipString();
  bool SkipScalar();
  bool Escape(std::string* out);
  bool HexQuad(uint32_t* unit);
  bool StartsNumber() const;
  bool Number(double* out, NumberText* text);
  bool Integer(int64_t* out);
  template <typename Element>
  bool ReadList(const Element& element);
  bool Odd(size_t index, std::vector<OddElement>* odd);

  const char* begin_;
  const char* at_;
  const char* end_;
  const char* expected_ = nullptr;
  bool first_ = false;  // true if nothing was read yet of the object or list that was entered last
  std::string key_;
};

// Returns true if `text` is UTF-8 without surrogates.
bool IsUtf8(std::string_view text);

}  // namespace plumbline::audit

// A strict JSON text read from front to back without building a tree, which says at which byte it
// stopped being JSON and what was expected there. Lists of numbers, most of a rollout record, go
// straight into vectors.
//
// Bare words that writers of JSON use for what it cannot hold (NaN, Infinity, nan, inf, -inf, None)
// are let through as values of kind kWord, so that their reader can name them in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

inline bool IsDigit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// How numbers were written.
struct NumberText {
  int decimals = 0;   // most digits behind the point, less the exponent
  bool full = false;  // some value has 15 significant digits or more: a double as it was

  friend bool operator==(const NumberText&, const NumberText&) = default;
};

// An element of a list that is no number, or no whole one where those were asked for.
struct OddElement {
  size_t index = 0;
  size_t offset = 0;  // byte of the text
};

// Not thread-safe. The text outlives the cursor. After the first failure every call returns false
// and changes nothing.
class JsonCursor {
 public:
  enum class Kind { kObject, kList, kString, kNumber, kTrue, kFalse, kNull, kWord, kNone };

  explicit JsonCursor(std::string_view text)
      : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()) {}

  bool failed() const { return expected_ != nullptr; }
  const char* expected() const { return expected_; }  // "',' or ']'"; after a failure
  size_t offset() const { return static_cast<size_t>(at_ - begin_); }  // then: of the failure
  // The text ended where more was expected: it may have been cut.
  bool cut() const { return failed() && at_ == end_; }

  // The next value's kind by its first character; kNone at what begins no value. Spaces are passed.
  Kind Peek();

  // { "key": value, ... }: Enter, then Next for each member, whose value must be read or skipped;
  // Next is false at the end and on failure. Keys are unescaped, valid until the next call.
  bool EnterObject();
  bool NextMember(std::string_view* key);
  // [ value, ... ], alike.
  bool EnterList();
  bool NextElement();

  // Any value, checked.
  bool Skip();
  bool ReadString(std::string* out);  // unescaped; refused where it is no UTF-8
  bool ReadNumber(double* out, NumberText* text);

  // A whole list. What is no number becomes a NaN (or kNoInteger) and is noted in `odd`, nested
  // lists and objects too; the list's grammar is still checked. Appends.
  bool ReadNumbers(std::vector<double>* out, NumberText* text, std::vector<OddElement>* odd);
  bool ReadIntegers(std::vector<int64_t>* out, std::vector<OddElement>* odd);
  // true, false and numbers: 1 where the element is neither false nor 0.
  bool ReadFlags(std::vector<uint8_t>* out, std::vector<OddElement>* odd);

  // Nothing but spaces may follow.
  bool AtEnd();

  static constexpr int64_t kNoInteger = INT64_MIN;

 private:
  bool Fail(const char* expected);
  void Space();
  bool Enter(char bracket, const char* expected);
  // Past a comma, or past the closing bracket and false.
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
  bool first_ = false;  // nothing was read yet of the object or list just entered
  std::string key_;
};

// True where `text` is UTF-8 without surrogates.
bool IsUtf8(std::string_view text);

}  // namespace plumbline::audit

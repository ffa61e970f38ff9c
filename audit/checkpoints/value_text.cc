#include "audit/checkpoints/value_text.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "audit/checkpoints/bit_difference.h"
#include "audit/render/text_util.h"
#include "base/sha256.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostOfKey = 512;   // bytes; longer keys are replaced by a digest
constexpr size_t kMostOfQuote = 60;  // bytes of a text that are shown

// Formats a float like Python's repr: it always has a point.
std::string RealText(double value) {
  if (std::isnan(value)) {
    const auto bits = std::bit_cast<uint64_t>(value);
    return bits == 0x7ff8000000000000u ? "nan" : absl::StrFormat("nan (bits 0x%x)", bits);
  }
  char buffer[40];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Formats a two's complement number, lowest byte first.
std::string LongText(std::string_view bytes) {
  const bool negative = !bytes.empty() && (bytes.back() & 0x80) != 0;
  std::vector<uint32_t> digits;  // base 2^32 digits of the magnitude, lowest first
  uint32_t carry = negative ? 1 : 0;
  for (size_t at = 0; at < bytes.size(); at += 4) {
    uint64_t digit = 0;
    for (size_t k = 0; k < 4; ++k) {
      const auto byte = at + k < bytes.size() ? static_cast<unsigned char>(bytes[at + k])
                                              : (negative ? 0xffu : 0u);
      digit |= uint64_t{negative ? byte ^ 0xffu : byte} << (8 * k);
    }
    digit += carry;
    carry = static_cast<uint32_t>(digit >> 32);
    digits.push_back(static_cast<uint32_t>(digit));
  }
  if (carry != 0) digits.push_back(carry);
  // Emit nine decimal digits at a time, from the right.
  std::string text;
  while (!digits.empty()) {
    uint64_t rest = 0;
    for (size_t i = digits.size(); i-- > 0;) {
      const uint64_t value = rest << 32 | digits[i];
      digits[i] = static_cast<uint32_t>(value / 1000000000);
      rest = value % 1000000000;
    }
    while (!digits.empty() && digits.back() == 0) digits.pop_back();
    text = digits.empty() ? absl::StrCat(rest, text) : absl::StrFormat("%09d%s", rest, text);
  }
  return absl::StrCat(negative ? "-" : "", text.empty() ? "0" : text);
}

// Python pickles a complex number as a call of two floats.
bool IsComplex(const PickleTree& tree, PickleId id) {
  if (tree.callee(id) != "builtins.complex") return false;
  const std::vector<PickleId>& parts = tree.items(tree.call(id).arguments);
  return parts.size() == 2 && tree.Is(parts[0], PickleKind::kReal) &&
         tree.Is(parts[1], PickleKind::kReal);
}

std::string ComplexText(const PickleTree& tree, PickleId id) {
  const std::vector<PickleId>& parts = tree.items(tree.call(id).arguments);
  std::string imaginary = RealText(tree.real(parts[1]));
  if (imaginary[0] != '-') imaginary.insert(0, "+");
  return absl::StrCat("(", RealText(tree.real(parts[0])), imaginary, "j)");
}

// ---- a number of numpy, with its dtype: 1.0 and float32(1.0) differ in a resume ----

std::string NumpyText(const PickleTree& tree, const NumpyValue& number) {
  std::string bytes = tree.bytes(number.bytes);
  if (number.swapped) std::reverse(bytes.begin(), bytes.end());
  return absl::StrCat(
      ElementText(reinterpret_cast<const std::byte*>(bytes.data()), number.dtype, 0), " (numpy ",
      number.swapped ? ">" : "", number.letters, ")");
}

std::string Quote(std::string_view text) {
  const bool cut = text.size() > kMostOfQuote;
  return absl::StrCat("\"", Printable(text.substr(0, kMostOfQuote)), cut ? "...\"" : "\"");
}

// Appends the keys of a container's parts, each after its length, so that no two contents have the
// same key.
void AppendParts(const PickleTree& tree, const std::vector<PickleId>& parts, bool sorted,
                 std::string* out) {
  std::vector<std::string> keys;
  for (const PickleId part : parts) keys.push_back(ValueKey(tree, part));
  if (sorted) std::sort(keys.begin(), keys.end());
  for (const std::string& key : keys) absl::StrAppend(out, key.size(), ":", key);
}

// numpy 2 renamed the modules in its pickles. Maps both names to one.
std::string NameOfBoth(std::string name) {
  if (name.starts_with("numpy._core.")) name.replace(0, 12, "numpy.core.");
  return ValidUtf8(name);
}

}  // namespace

// ---- names of called functions ---------------------------------------------------------------

std::string CalleeName(const PickleTree& tree, PickleId id) {
  const std::string name(tree.callee(id));
  return name.empty() ? "a value that is not a name" : NameOfBoth(name);
}

// torch pickles its version as an instance of a str subclass.
PickleId TextOrItself(const PickleTree& tree, PickleId id) {
  if (tree.callee(id) != "torch.torch_version.TorchVersion") return id;
  const std::vector<PickleId>& items = tree.items(tree.call(id).arguments);
  return items.size() == 1 && tree.Is(items[0], PickleKind::kText) ? items[0] : id;
}

// Returns "Class.name" for a method bound to an object; otherwise "".
std::string MethodOf(const PickleTree& tree, PickleId id) {
  if (tree.callee(id) != "builtins.getattr") return "";
  const std::vector<PickleId>& items = tree.items(tree.call(id).arguments);
  if (items.size() != 2 || !tree.Is(items[1], PickleKind::kText)) return "";
  PickleId object = items[0];
  if (tree.Is(object, PickleKind::kCircle)) object = tree.circle(object).call;
  if (!tree.Is(object, PickleKind::kCall)) return "";
  return absl::StrCat(CalleeName(tree, object), ".", ValidUtf8(tree.text(items[1])));
}

// ---- one value: its form, its text, its key ----

ValueForm FormOfValue(const TorchFile& file, PickleId id) {
  const PickleTree& tree = file.tree();
  switch (tree.kind(id)) {
    case PickleKind::kText:
      return ValueForm::kText;
    case PickleKind::kBytes:
      return ValueForm::kBytes;
    case PickleKind::kList:
      return ValueForm::kList;
    case PickleKind::kTuple:
      return ValueForm::kTuple;
    case PickleKind::kSet:
      return ValueForm::kSet;
    case PickleKind::kDict:
      return ValueForm::kDict;
    case PickleKind::kPersistent:
      return ValueForm::kStorage;
    case PickleKind::kRun:
      return ValueForm::kRun;
    case PickleKind::kCall:
      break;
    default:
      return ValueForm::kScalar;
  }
  std::string wrong;
  if (file.Tensor(id, &wrong) || !wrong.empty()) return ValueForm::kTensor;
  if (IsComplex(tree, id)) return ValueForm::kScalar;
  const std::optional<NumpyValue> numpy = ReadNumpy(tree, id);
  if (!numpy) return ValueForm::kCall;
  return numpy->scalar ? ValueForm::kScalar : ValueForm::kArray;
}

std::string ScalarText(const PickleTree& tree, PickleId id) {
  switch (tree.kind(id)) {
    case PickleKind::kNone:
      return "None";
    case PickleKind::kBool:
      return tree.truth(id) ? "True" : "False";
    case PickleKind::kInt:
      return absl::StrCat(tree.whole(id));
    case PickleKind::kLong:
      return LongText(tree.text(id));
    case PickleKind::kReal:
      return RealText(tree.real(id));
    case PickleKind::kGlobal:
      return NameOfBoth(std::string(tree.text(id)));
    case PickleKind::kCircle:
      return absl::StrCat("a reference back to a call of ", CalleeName(tree, tree.circle(id).call));
    default:
      break;
  }
  if (IsComplex(tree, id)) return ComplexText(tree, id);
  const std::optional<NumpyValue> numpy = ReadNumpy(tree, id);
  return numpy ? NumpyText(tree, *numpy) : "";
}

std::string DescribeValue(const TorchFile& file, PickleId id) {
  const PickleTree& tree = file.tree();
  switch (FormOfValue(file, id)) {
    case ValueForm::kScalar:
      return ScalarText(tree, id);
    case ValueForm::kText:
      return Quote(tree.text(id));
    case ValueForm::kBytes:
      return absl::StrCat(tree.variant(id) ? "a bytearray of " : "",
                          Plural(tree.bytes(id).size(), "byte"));
    case ValueForm::kTensor:
      return "a tensor";
    case ValueForm::kArray: {
      const NumpyValue array = *ReadNumpy(tree, id);
      return absl::StrCat("an array of numpy ", array.swapped ? ">" : "", array.letters, " [",
                          absl::StrJoin(array.shape, ", "), "]");
    }
    case ValueForm::kList:
      return absl::StrCat("a list of ", tree.length(id));
    case ValueForm::kTuple:
      return absl::StrCat("a tuple of ", tree.items(id).size());
    case ValueForm::kSet:
      return absl::StrCat(tree.variant(id) ? "a frozenset of " : "a set of ", tree.length(id));
    case ValueForm::kDict:
      return absl::StrCat("a dict of ", tree.length(id) / 2);
    case ValueForm::kCall:
      return absl::StrCat("a call of ", CalleeName(tree, id));
    case ValueForm::kStorage:
      return "a storage";
    case ValueForm::kRun:
      return absl::StrCat(Plural(tree.run(id).values, "plain value"), " that were not stored");
  }
  return "";
}

std::string ValueKey(const PickleTree& tree, PickleId id) {
  if (id == kNoPickle) return "-";
  std::string out;
  switch (tree.kind(id)) {
    case PickleKind::kText:
      out = "t" + std::string(tree.text(id));
      break;
    case PickleKind::kBytes:
      out = (tree.variant(id) ? "B" : "b") + tree.bytes(id);
      break;
    case PickleKind::kList:
    case PickleKind::kTuple:
    case PickleKind::kPersistent:
    case PickleKind::kDict:
    case PickleKind::kSet: {
      const PickleKind kind = tree.kind(id);
      out = std::string(1, static_cast<char>('A' + static_cast<int>(kind)));
      if (tree.variant(id)) out += "f";
      AppendParts(tree, tree.items(id), kind == PickleKind::kSet, &out);
      break;
    }
    case PickleKind::kCall:
      if (out = ScalarText(tree, id); out.empty()) {
        const PickleCall& call = tree.call(id);
        out = absl::StrCat("c", CalleeName(tree, id), ":");
        AppendParts(tree, {call.arguments, call.keywords, call.state, call.items, call.entries},
                    false, &out);
      } else {
        out.insert(0, "s");
      }
      break;
    case PickleKind::kRun:  // no Python key contains a run
      out = absl::StrCat("r", tree.offset(id));
      break;
    default:
      out = absl::StrCat("s", ScalarText(tree, id));
  }
  if (out.size() <= kMostOfKey) return out;
  return absl::StrCat("#", HexText(Sha256Of(out)));
}

}  // namespace plumbline::audit

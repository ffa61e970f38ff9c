// Reads values that are not plain numbers: words for an absent value, and texts of tensors.
#include <algorithm>
#include <iterator>
#include <optional>

#include "audit/readers/log_text/log_pairs.h"
#include "audit/readers/scalars/number_text.h"

namespace plumbline::audit {

bool MayStandAfter(const char* at, const char* end) {
  static constexpr Bytes kAfterValue(" \t,;|)]}'\"(<\r");
  if (at == end || kAfterValue[*at]) return true;
  return (*at == '.' || *at == ':' || *at == '!') && (at + 1 == end || IsSpaceByte(at[1]));
}

bool AfterSign(const char* from, const char* at) {
  while (at != from && IsSpaceByte(at[-1])) --at;
  return at != from && kSigns[at[-1]];
}

// Takes "None", "null", "N/A" or "--" after a sign. The name then has no value in this line.
bool LogPairs::TakeAbsent(LogPair* pair) {
  static constexpr std::string_view kWords[] = {"None", "none", "null", "NULL", "N/A",
                                                "n/a",  "NA",   "--",   "nil"};
  static constexpr Bytes kFirst("Nn-"), kSecond("ouU/A-i"), kThird("nlLAa");
  if (end_ - at_ < 2 || !kFirst[*at_] || !kSecond[at_[1]]) return false;  // most texts
  const bool two = at_[1] == 'A' || at_[1] == '-';
  if (!two && (end_ - at_ < 3 || !kThird[at_[2]])) return false;  // "num", "norm"
  const std::string_view rest(at_, static_cast<size_t>(end_ - at_));
  const auto* word = std::find_if(std::begin(kWords), std::end(kWords),
                                  [&](std::string_view w) { return rest.starts_with(w); });
  if (word == std::end(kWords) || !AfterSign(name_, at_)) return false;
  const char* stop = at_ + word->size();
  if (!MayStandAfter(stop, end_)) return false;
  const LogNames::Name name = names_->Of({name_, static_cast<size_t>(at_ - name_)});
  if (name.name.empty()) return false;
  *pair = {};
  pair->name = name.name;
  pair->group = group_;
  pair->absent = true;
  at_ = name_ = stop;
  return true;
}

// Takes the number of "<tf.Tensor: shape=(), dtype=float32, numpy=2.3>" as the value.
bool LogPairs::TakeTensor(LogPair* pair) {
  constexpr std::string_view kValue = "numpy=";
  constexpr size_t kLongest = 256;
  const std::string_view rest(at_, static_cast<size_t>(end_ - at_));
  if (!rest.starts_with("<tf.")) return false;
  const size_t close = rest.substr(0, kLongest).find('>');
  const size_t value = rest.substr(0, close).find(kValue);
  if (close == std::string_view::npos || value == std::string_view::npos) return false;
  const size_t begin = value + kValue.size();
  const std::optional<double> number = NumberOf(rest.substr(begin, close - begin));
  const LogNames::Name name = names_->Of({name_, static_cast<size_t>(at_ - name_)});
  const bool signs = AfterSign(name_, at_);
  at_ = name_ = at_ + close + 1;
  if (!number || name.name.empty()) return false;
  *pair = {};
  pair->name = name.name;
  pair->value = *number;
  pair->group = group_;
  pair->after_sign = signs;
  return true;
}

// Takes "loss2.300" or "lossnan", without a sign between the name and its number (LightGCN).
// "loss2" is a name.
bool LogPairs::TakeJoined(LogPair* pair) {
  constexpr std::ptrdiff_t kName = 4;
  if (at_[-1] != 's' || at_ - name_ < kName) return false;
  const char* const name = at_ - kName;
  if (std::string_view(name + 1, 3) != "oss" || (*name | 0x20) != 'l') return false;
  if (name != begin_ && (IsPairLetter(name[-1]) || IsPairDigit(name[-1]) || name[-1] == '_'))
    return false;
  double value = 0;
  const char* const stop = ScanNumber(at_, end_, &value);
  const std::string_view number(at_, static_cast<size_t>(stop - at_));
  if (IsPairDigit(*at_) ? number.find('.') == number.npos : !IsPairLetter(*at_) || number.empty())
    return false;
  if (stop != end_ && (IsPairLetter(*stop) || IsPairDigit(*stop) || *stop == '_')) return false;
  *pair = {};
  pair->name = {name, kName};
  pair->value = value;
  pair->after_sign = true;
  pair->at_end = stop == end_;
  at_ = name_ = stop;
  return true;
}

// Takes the sum of "train==[2.5=2.4 + 0.1]", a loss and its terms (NGCF). at_ is at the bracket.
bool LogPairs::TakeSum(LogPair* pair) {
  std::string_view before(name_, static_cast<size_t>(at_ - name_));
  if (*at_ != '[' || !before.ends_with("==")) return false;
  before.remove_suffix(2);
  before.remove_prefix(before.find_last_of(" \t:,|") + 1);  // npos + 1 is 0
  double value = 0;
  const char* const stop = ScanNumber(at_ + 1, end_, &value);
  const std::string_view rest(stop, static_cast<size_t>(end_ - stop));
  const size_t close = rest.find(']');
  if (stop == at_ + 1 || !rest.starts_with('=') || close == rest.npos ||
      rest.substr(0, close).find(" + ") == rest.npos || before.empty() || !IsPairLetter(before[0]))
    return false;
  constexpr std::string_view kLoss = "loss";
  *pair = {};
  pair->name = kLoss;
  pair->group = before;
  pair->value = value;
  pair->after_sign = true;
  at_ = name_ = stop + close + 1;
  return true;
}

}  // namespace plumbline::audit

#include "audit/readers/log_text/log_numbers.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "audit/readers/log_text/log_bytes.h"
#include "audit/readers/scalars/number_text.h"

namespace plumbline::audit {
namespace {

constexpr UnitOf kUnits[] = {{"ns", 1e-9},
                             {"us", 1e-6},
                             {"µs", 1e-6},
                             {"ms", 1e-3},
                             {"msec", 1e-3},
                             {"s", 1},
                             {"sec", 1},
                             {"secs", 1},
                             {"seconds", 1},
                             {"min", 60},
                             {"h", 3600},
                             {"%", 0.01},
                             {"KB", 1e3},
                             {"MB", 1e6},
                             {"GB", 1e9},
                             {"TB", 1e12},
                             {"KiB", 1024.0},
                             {"MiB", 1048576.0},
                             {"GiB", 1073741824.0},
                             {"TiB", 1099511627776.0},
                             {"K", 1e3},
                             {"k", 1e3},
                             {"M", 1e6},
                             {"G", 1e9},
                             {"B", 1e9},
                             {"T", 1e12}};

// Returns the end of a number with digits in groups of three: "208,000.00".
const char* GroupsEnd(const char* from, const char* to) {
  const char* at = from;
  if (at != to && (*at == '-' || *at == '+')) ++at;
  const char* first = at;
  while (at != to && IsPairDigit(*at)) ++at;
  if (at == first || at - first > 3) return from;
  const char* groups = at;
  while (to - at > 3 && *at == ',' && IsPairDigit(at[1]) && IsPairDigit(at[2]) &&
         IsPairDigit(at[3]) && (to - at == 4 || !IsPairDigit(at[4])))
    at += 4;
  return at == groups ? from : at;
}

}  // namespace

const UnitOf* FindUnit(std::string_view name) {
  if (name.empty() || name.size() > 7) return nullptr;
  for (const UnitOf& unit : kUnits) {
    if (unit.name[0] == name[0] && unit.name == name) return &unit;
  }
  return nullptr;
}

const char* UnitEnd(const char* from, const char* to) {
  while (from != to && (IsPairLetter(*from) || *from == '/' || *from == '%' ||
                        static_cast<unsigned char>(*from) >= 0x80))
    ++from;
  return from;
}

const char* ScanGrouped(const char* from, const char* to, double* value) {
  const char* groups = GroupsEnd(from, to);
  if (groups == from) return ScanNumber(from, to, value);
  char digits[64];
  size_t size = 0;
  const char* at = from;
  while (at != to && size < sizeof digits && (at < groups || IsPairDigit(*at) || *at == '.')) {
    if (*at != ',') digits[size++] = *at;
    ++at;
  }
  const char* stop = ScanNumber(digits, digits + size, value);
  return stop == digits + size ? at : from;
}

const char* PassOtherPower(const char* from, const char* to, double* value) {
  if (from == to || (*from != 'f' && *from != 'D')) return from;
  const char* at = from + 1;
  const bool sign = at != to && (*at == '-' || *at == '+');
  const bool negative = sign && *at == '-';
  if (sign) ++at;
  if (*from == 'D' && !sign) return from;
  int power = 0;
  const char* first = at;
  while (at != to && IsPairDigit(*at) && at - first < 3) power = 10 * power + (*at++ - '0');
  if (at == first || (at != to && (IsPairLetter(*at) || IsPairDigit(*at)))) return from;
  *value *= std::pow(10.0, negative ? -power : power);
  return at;
}

const char* PassSpread(const char* from, const char* to) {
  if (to - from < 3 || from[0] != '\xC2' || from[1] != '\xB1') return from;
  double spread = 0;
  const char* stop = ScanNumber(from + 2, to, &spread);
  return stop == from + 2 ? from : stop;
}

const char* ScanCommaDecimal(const char* from, const char* to, double* value) {
  const char* at = from;
  if (at != to && (*at == '-' || *at == '+')) ++at;
  const char* first = at;
  while (at != to && IsPairDigit(*at)) ++at;
  if (at == first || to - at < 2 || *at != ',' || !IsPairDigit(at[1])) return from;
  char digits[64];
  const size_t room = std::min<size_t>(static_cast<size_t>(to - from), sizeof digits);
  std::copy_n(from, room, digits);
  digits[at - from] = '.';
  const char* stop = ScanNumber(digits, digits + room, value);
  return from + (stop - digits);
}

// Reads letters that are a unit of bytes. Returns nullptr if they are not. Sets *end to their end.
static const UnitOf* ByteUnit(const char* from, const char* to, const char** end) {
  *end = from;
  while (*end != to && IsPairLetter(**end)) ++*end;
  const UnitOf* unit = FindUnit({from, static_cast<size_t>(*end - from)});
  return unit != nullptr && unit->factor >= 1000 && unit->name != "h" ? unit : nullptr;
}

const char* ScanLimit(const char* from, const char* to, double* use, double* limit) {
  // Percent; with a smaller share, the limit would have only one digit.
  constexpr double kLeastShare = 0.1;
  const char* at = from;
  const UnitOf* unit = ByteUnit(from, to, &at);
  double second = 0;
  if (unit != nullptr && at != to && *at == '(') {
    const char* stop = ScanNumber(at + 1, to, &second);
    const bool share = to - stop >= 2 && stop[0] == '%' && stop[1] == ')';
    if (!share || !(second >= kLeastShare) || !(*use > 0)) return from;
    *use *= unit->factor;
    *limit = *use / second * 100;
    return stop + 2;
  }
  if (unit == nullptr && at != from) return from;
  while (at != to && IsSpaceByte(*at)) ++at;
  if (at == to || *at != '/') return from;
  ++at;
  while (at != to && IsSpaceByte(*at)) ++at;
  const char* stop = ScanNumber(at, to, &second);
  if (stop == at || !(second >= *use)) return from;
  const UnitOf* of_limit = ByteUnit(stop, to, &at);
  if (of_limit == nullptr) return from;
  *use *= unit == nullptr ? of_limit->factor : unit->factor;
  *limit = second * of_limit->factor;
  return at;
}

// True if the name ends in "loss". After such a name "4,507" may be 4.507 or 4507, but "12,345" is
// a whole number.
static bool EndsInLoss(std::string_view text) {
  static constexpr Bytes kSign(" \t:=");
  Trim(&text, Bytes(""), kSign);
  return text.ends_with("loss") || text.ends_with("Loss");
}

void CountDecimals(std::string_view line, size_t* commas, size_t* points) {
  for (size_t at = 1; at + 1 < line.size(); ++at) {
    const char c = line[at];
    if ((c != ',' && c != '.') || !IsPairDigit(line[at - 1]) || !IsPairDigit(line[at + 1]))
      continue;
    size_t begin = at, end = at + 1;
    while (begin > 0 && IsPairDigit(line[begin - 1])) --begin;
    while (end < line.size() && IsPairDigit(line[end])) ++end;
    static constexpr Bytes kFront(" \t:=-+");
    static constexpr Bytes kBack(" \t|;eE%,");
    const bool apart =
        begin > 0 && kFront[line[begin - 1]] && (end == line.size() || kBack[line[end]]);
    // "12:00:00,123" and "1.2.3" have no decimal comma and no decimal point.
    if (!apart || (line[begin - 1] == ':' && begin > 1 && IsPairDigit(line[begin - 2]))) continue;
    const bool loss = EndsInLoss(line.substr(0, begin));
    if (c == '.') {
      ++*points;
    } else if (loss && end - at == 4) {
      ++*(at - begin == 1 ? commas : points);
    } else if (end - at != 4 || line[begin] == '0') {
      const bool list = end < line.size() && line[end] == ',' && end + 1 < line.size() &&
                        !IsSpaceByte(line[end + 1]);
      *commas += list ? 0 : 1;
    }
    at = end;
  }
}

Decimals DecimalsIn(std::string_view sample) {
  size_t commas = 0, points = 0;
  while (!sample.empty()) {
    const std::string_view line = sample.substr(0, sample.find_first_of("\r\n"));
    sample.remove_prefix(std::min(sample.size(), line.size() + 1));
    CountDecimals(line, &commas, &points);
  }
  return commas >= 2 && points == 0 ? Decimals::kComma : Decimals::kPoint;
}

}  // namespace plumbline::audit

// Reads numbers within a log line, and their units. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

namespace plumbline::audit {

struct UnitOf {
  std::string_view name;
  double factor;  // converts to seconds, bytes or fractions
};
// Returns nullptr if no unit has this name.
const UnitOf* FindUnit(std::string_view name);
// Returns the end of a unit, known or not: letters, '/', '%' and the micro sign.
const char* UnitEnd(const char* from, const char* to);

// Reads a number, with or without commas between thousands. Returns `from` if there is none.
const char* ScanGrouped(const char* from, const char* to, double* value);
// Reads the power of ten that follows a number in Julia ("2.5f0", "1f-3") and Fortran ("0.69D-01").
// Applies it to *value and returns its end. If there is none, returns `from`.
const char* PassOtherPower(const char* from, const char* to, double* value);
// Returns the end of the spread "±0.01" that follows a number; `from` if there is none.
const char* PassSpread(const char* from, const char* to);
// Reads "2,5", "0,0003", "4,51e-05", with a decimal comma. Returns `from` if there is none.
const char* ScanCommaDecimal(const char* from, const char* to, double* value);

// Reads the limit that follows the number `use`: "78.3GiB(98.84%)", "78.3/79.2GiB", "40.1GB/80GB",
// "40536MiB / 81920MiB". Returns its end, and sets both to bytes. If there is no limit, returns
// `from` and changes nothing.
const char* ScanLimit(const char* from, const char* to, double* use, double* limit);

// The sign before decimals in a log: "2.5" or "2,5".
enum class Decimals { kPoint, kComma };

// Counts in one line the numbers that only a decimal comma explains ("0,0003", "4,51e-05"), and the
// numbers with a decimal point.
void CountDecimals(std::string_view line, size_t* commas, size_t* points);
// Returns the decimal sign of the lines in a sample. A single number such as "4,507" is ambiguous.
Decimals DecimalsIn(std::string_view sample);

}  // namespace plumbline::audit

// Numbers within a line of a log, and the units behind them. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

namespace plumbline::audit {

struct UnitOf {
  std::string_view name;
  double factor;  // to seconds, bytes and fractions
};
// nullptr: no unit of this name is known.
const UnitOf* FindUnit(std::string_view name);
// Letters, '/', '%' and the micro sign: a unit, known or not.
const char* UnitEnd(const char* from, const char* to);

// A number, with commas between its thousands or not; `from`: none.
const char* ScanGrouped(const char* from, const char* to, double* value);
// Behind the number that ends at `from`: the power of ten of Julia ("2.5f0", "1f-3") and Fortran
// ("0.69D-01"). Returns where it ends, with it in *value; `from`: there is none.
const char* PassOtherPower(const char* from, const char* to, double* value);
// Behind the number that ends at `from`: its spread, "±0.01". `from`: there is none.
const char* PassSpread(const char* from, const char* to);
// "2,5", "0,0003", "4,51e-05" where commas are the decimal signs; `from`: none.
const char* ScanCommaDecimal(const char* from, const char* to, double* value);

// `use`, a number that ends at `from`, and its limit: "78.3GiB(98.84%)", "78.3/79.2GiB",
// "40.1GB/80GB", "40536MiB / 81920MiB". Returns where that ends, with both in bytes; `from`: no
// limit is there, and nothing changed.
const char* ScanLimit(const char* from, const char* to, double* use, double* limit);

// How a log writes fractions: "2.5" or "2,5".
enum class Decimals { kPoint, kComma };

// Adds the evidence of one line: numbers that only a decimal comma explains ("0,0003", "4,51e-05")
// and numbers with a decimal point.
void CountDecimals(std::string_view line, size_t* commas, size_t* points);
// Returns how the lines of a sample write fractions, since a number such as "4,507" is both.
Decimals DecimalsIn(std::string_view sample);

}  // namespace plumbline::audit

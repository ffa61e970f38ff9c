// Numbers as people write them into logs and tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plumbline::audit {

// The number at `from`, a sign, `nan` and `inf` in any case included, as are `1.#QNAN` and the sign
// of infinity; where it ends, or `from` itself where there is none. Beyond the range of double:
// infinite, or 0.
const char* ScanNumber(const char* from, const char* to, double* value);

// The whole of a cell: spaces around it and quotes are passed. Nothing: empty, or no number.
std::optional<double> NumberOf(std::string_view text);

// -0.0 if the value is 0 and its text has an exponent ("0.00e+00"), so that no digits were cut off;
// else the value, 0 without its sign.
double SignedZero(std::string_view text, double value);

// A count, as a step may be written: "755", "1,000", "755/1000" (the first of the two). Nothing:
// none.
std::optional<int64_t> CountIn(std::string_view text);

// A whole number within 2^53: what a step may be.
bool IsWhole(double value);

}  // namespace plumbline::audit

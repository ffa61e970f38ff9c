// Numbers as they occur in logs and tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plumbline::audit {

// Reads the number at `from`: a sign, `nan` and `inf` in any case, `1.#QNAN` and the sign of
// infinity are allowed. Returns its end; `from` if there is none. Beyond the range of double the
// value is infinite, or 0.
const char* ScanNumber(const char* from, const char* to, double* value);

// Reads a whole cell, without spaces and quotes around it. Returns nullopt if it is empty or not
// numeric.
std::optional<double> NumberOf(std::string_view text);

// Returns -0.0 if the value is 0 and its text has an exponent ("0.00e+00"), so that no digits were
// cut off. Otherwise returns the value, 0 without its sign.
double SignedZero(std::string_view text, double value);

// Reads a count, as a step may be written: "755", "1,000", "755/1000" (its first number). Returns
// nullopt if there is none.
std::optional<int64_t> CountIn(std::string_view text);

// Returns true for a whole number within 2^53, as a step must be.
bool IsWhole(double value);

}  // namespace plumbline::audit

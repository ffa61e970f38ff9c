// Reads numbers in the forms that occur in logs and tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plumbline::audit {

// Reads the number at `from`. Allows a sign, `nan` and `inf` in any case, `1.#QNAN` and the sign of
// infinity. Returns its end; `from` if there is none. A value outside of double's range becomes
// infinite or 0.
const char* ScanNumber(const char* from, const char* to, double* value);

// Reads the number in a whole cell. Removes spaces and quotes around it. Returns nullopt if it is
// empty or not numeric.
std::optional<double> NumberOf(std::string_view text);

// Returns -0.0 if the value is 0 and its text shows that it is exactly 0: it has an exponent
// ("0.00e+00"), or is "0" without decimals (as %g prints it). Otherwise returns the value; a zero
// then has no sign. Spaces around the text are allowed.
double SignedZero(std::string_view text, double value);

// Reads a count, in a form in which steps are written: "755", "1,000", "755/1000" (the first
// number). Returns nullopt if there is none.
std::optional<int64_t> CountIn(std::string_view text);

// Returns true for a whole number within 2^53, as a step must be.
bool IsWhole(double value);

}  // namespace plumbline::audit

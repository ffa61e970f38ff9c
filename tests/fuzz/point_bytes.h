// Reads one file's bytes as a format of scalars, to their end, whatever they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// Readers of text return plain names; for other formats, the sink makes them plain.
enum class PointNames { kPlain, kAny };

// Returns the points as text, one per line. Aborts if the format violates a guarantee: a name that
// is not plain UTF-8, a column that was not requested, a problem without what was expected or
// beyond the bytes.
std::string ReadPointBytes(const uint8_t* data, size_t size, const PointFormat& format,
                           PointNames names = PointNames::kPlain);

}  // namespace plumbline::audit

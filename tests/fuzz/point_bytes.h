// One file's bytes through a format of scalars: whatever they are, it reads them to their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// Readers of text give plain names; of other formats who takes the points makes them plain.
enum class PointNames { kPlain, kAny };

// The points as text, a line each. Aborts when the format breaks a promise: a name that is no plain
// UTF-8, a column that nobody asked for, a problem without what was expected or beyond the bytes.
std::string ReadPointBytes(const uint8_t* data, size_t size, const PointFormat& format,
                           PointNames names = PointNames::kPlain);

}  // namespace plumbline::audit

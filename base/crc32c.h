// CRC-32C (Castagnoli), the checksum of the framed log. Uses the hardware instruction if the
// processor has it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plumbline {

// Returns the checksum of `data`, continuing from `crc` (0 to start). Thread-safe.
uint32_t Crc32c(const void* data, size_t size, uint32_t crc = 0);

}  // namespace plumbline

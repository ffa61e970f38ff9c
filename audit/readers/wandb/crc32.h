// CRC-32 as zip, gzip, zlib and W&B's log have it, by carry-less multiplication where the
// processor has it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plumbline::audit {

// Checksum of `data`, continuing from `crc` (0 to start). Thread-safe.
uint32_t Crc32(const void* data, size_t size, uint32_t crc = 0);

namespace internal {
// The portable form, for processors without the instruction, short data, and the tests.
uint32_t Crc32Table(const void* data, size_t size, uint32_t crc);
}  // namespace internal

}  // namespace plumbline::audit

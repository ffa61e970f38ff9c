// Passes one file's bytes through the whole audit, which must answer whatever they are. Shared by
// the mutation test, which always runs, and the libFuzzer programs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plumbline::audit {

// Aborts if the audit violates a guarantee (a report that is not JSON, a problem without its
// offset). If `format` is "", the format is recognised by content.
void AuditBytes(const uint8_t* data, size_t size, const char* format);

}  // namespace plumbline::audit

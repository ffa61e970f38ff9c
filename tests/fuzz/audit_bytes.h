// One file's bytes through the whole audit: whatever they are, it answers. Shared by the mutation
// test, which always runs, and the libFuzzer programs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plumbline::audit {

// Aborts when the audit breaks a promise (a report that is no JSON, a problem without its place).
// `format` "" recognises by content.
void AuditBytes(const uint8_t* data, size_t size, const char* format);

}  // namespace plumbline::audit

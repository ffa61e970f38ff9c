// libFuzzer: arbitrary bytes as a checkpoint.
#include "tests/fuzz/audit_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plumbline::audit::AuditBytes(data, size, "checkpoint");
  return 0;
}

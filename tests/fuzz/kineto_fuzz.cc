// libFuzzer: arbitrary bytes as a trace in Chrome's format.
#include "tests/fuzz/audit_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plumbline::audit::AuditBytes(data, size, "kineto");
  return 0;
}

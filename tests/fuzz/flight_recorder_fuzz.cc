// libFuzzer: arbitrary bytes as a dump of a flight recorder.
#include "tests/fuzz/audit_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plumbline::audit::AuditBytes(data, size, "flight-recorder");
  return 0;
}

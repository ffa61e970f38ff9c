// libFuzzer: arbitrary bytes as tables, JSON and logs of trainers; the first byte selects the
// format.
#include "tests/fuzz/point_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plumbline::audit;
  const PointFormat* formats[] = {&CsvFormat(), &JsonLinesFormat(), &TrainerLogFormat()};
  if (size == 0) return 0;
  ReadPointBytes(data + 1, size - 1, *formats[data[0] % 3]);
  return 0;
}

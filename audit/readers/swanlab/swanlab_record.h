// One record of a SwanLab file, as far as series need it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// All of a file's records go to one sink. Not thread-safe.
class SwanlabRecords {
 public:
  // False if the bytes are no record. `Read` takes protocol buffers (version 2 of the file),
  // `ReadJson` the JSON of version 1.
  bool Read(std::string_view record, PointSink* sink);
  bool ReadJson(std::string_view record, PointSink* sink);

 private:
  struct Scalar {
    std::string key;
    int64_t step = 0;
    std::optional<double> value;
  };
  bool ReadStart(std::string_view bytes, PointSink* sink);
  bool ReadFinish(std::string_view bytes, PointSink* sink);
  bool ReadScalar(std::string_view bytes, PointSink* sink);
  void Take(const Scalar& scalar, PointSink* sink);

  int64_t newest_ = 0;  // step of the series that the trainer logs
};

}  // namespace plumbline::audit

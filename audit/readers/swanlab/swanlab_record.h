// Reads one record of a SwanLab file. Reads only the fields that series need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "audit/readers/scalars/point_file.h"

namespace plumbline::audit {

// All records of a file go to one sink. Not thread-safe.
class SwanlabRecords {
 public:
  // Both return false if the bytes are not a record. `Read` reads protocol buffers (file version
  // 2), `ReadJson` the JSON of version 1.
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

  int64_t newest_ = 0;  // newest step of the trainer's series
};

}  // namespace plumbline::audit

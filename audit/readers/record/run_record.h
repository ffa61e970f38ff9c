// Reads run records: framed logs of the batches that probes send to a server. One file per process;
// the files of a run's ranks and attempts are read in parallel.
#pragma once

#include "audit/readers/input/reader.h"

namespace plumbline::audit {

class RunRecordReader : public Reader {
 public:
  std::string_view format() const override { return "run-record"; }
  bool Recognise(std::string_view path, std::string_view head) const override;
  std::vector<std::unique_ptr<Source>> Open(const std::vector<InputReport*>& files) const override;
};

}  // namespace plumbline::audit

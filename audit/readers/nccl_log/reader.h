// Reads logs of NCCL (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,GRAPH,COLL): the collectives that
// were called, and their rings.
#pragma once

#include "audit/readers/input/reader.h"

namespace plumbline::audit {

// The files of all ranks, or one file that they share, are one input. Calls are joined over these
// files.
class NcclLogReader : public Reader {
 public:
  std::string_view format() const override { return "nccl-log"; }
  bool Recognise(std::string_view path, std::string_view head) const override;
  std::vector<std::unique_ptr<Source>> Open(const std::vector<InputReport*>& files) const override;
};

}  // namespace plumbline::audit

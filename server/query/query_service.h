// v1::Query: what a server holds, and incidents as they happen.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/counters.h"
#include "server/incidents/incident_book.h"
#include "server/judge/judge.h"

namespace grpc {
class Service;
}

namespace plumbline::server {

class QueryService {
 public:
  virtual ~QueryService() = default;

  // All pointers must outlive the service.
  static std::unique_ptr<QueryService> Create(std::string version, const Judge* judge,
                                              IncidentBook* book, const Counters* counters);

  virtual grpc::Service* service() = 0;
  // Ends every watch with UNAVAILABLE.
  virtual void Shutdown() = 0;
};

}  // namespace plumbline::server

#include "server/access/methods.h"

namespace plumbline::server {

const std::vector<MethodRule>& MethodRules() {
  static const std::vector<MethodRule> rules = {
      {"/plumbline.v1.Ingest/Stream", false, Scope::kWrite, true},
      {"/plumbline.v1.Query/ListRuns", false, Scope::kRead, true},
      {"/plumbline.v1.Query/ListIncidents", false, Scope::kRead, true},
      {"/plumbline.v1.Query/ListVerdicts", false, Scope::kRead, true},
      {"/plumbline.v1.Query/WatchIncidents", false, Scope::kRead, true},
      {"/plumbline.v1.Query/GetServerInfo", false, Scope::kRead, true},  // concerns no run
      {"/plumbline.v1.Query/ListIncidentHistory", false, Scope::kRead, true},
      {"/plumbline.v1.Query/UpdateIncident", false, Scope::kAdmin, true},
      {"/plumbline.v1.Query/UpdateRun", false, Scope::kAdmin, true},
      {"/plumbline.v1.Query/ListSeries", false, Scope::kRead, true},
      {"/plumbline.v1.Query/QuerySeries", false, Scope::kRead, true},
      {"/plumbline.v1.Query/ReadRun", false, Scope::kRead, true},
      {"/plumbline.v1.Query/ListCapsules", false, Scope::kRead, true},
      {"/plumbline.v1.Query/RequestCapsule", false, Scope::kAdmin,
       true},  // causes work in trainers
      {"/plumbline.v1.Query/GetCapsule", false, Scope::kRead, true},
      // Probes of an orchestrator have no credentials; the answer is one bit.
      {"/grpc.health.v1.Health/Check", true, Scope::kRead, true},
      {"/grpc.health.v1.Health/Watch", true, Scope::kRead, true},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", false, Scope::kRead, true},
  };
  return rules;
}

MethodRule RuleOfMethod(std::string_view path) {
  for (const MethodRule& rule : MethodRules()) {
    if (rule.path == path) return rule;
  }
  return MethodRule();
}

}  // namespace plumbline::server

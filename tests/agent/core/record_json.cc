// Prints one or more run records as JSON: one line per evidence item, with its source's rank. For
// tests that are not written in C++.
#include <google/protobuf/util/json_util.h>

#include <cstdio>
#include <string>

#include "tests/agent/core/support.h"

namespace {

bool Print(const plumbline::v1::Batch& batch) {
  for (const plumbline::v1::Evidence& e : batch.evidence()) {
    std::string json;
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    if (!google::protobuf::util::MessageToJsonString(e, &json, options).ok()) return false;
    std::printf("{\"rank\":%u,\"evidence\":%s}\n", batch.sources(0).rank(), json.c_str());
  }
  for (const plumbline::v1::Loss& loss : batch.losses()) {
    std::printf("{\"rank\":%u,\"loss\":\"%s\",\"layer\":\"%s\",\"count\":%llu}\n",
                batch.sources(0).rank(), loss.cause().c_str(), loss.site().layer().c_str(),
                static_cast<unsigned long long>(loss.count()));
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    for (const plumbline::v1::Batch& batch : plumbline::agent::testing::ReadRecord(argv[i])) {
      if (!Print(batch)) return 1;
    }
  }
  return 0;
}

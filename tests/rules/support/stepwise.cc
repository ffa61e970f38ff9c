#include "tests/rules/support/stepwise.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/support/batches.h"

namespace plumbline::rules::testing {
namespace {

// The data of a source over all batches; attempts in order.
using SourceKey = std::pair<uint32_t, std::string>;

struct Content {
  v1::Source source;
  std::vector<const v1::Loss*> losses;
  std::vector<const v1::SiteDeclaration*> declarations;
  std::map<int64_t, std::vector<const v1::Evidence*>> evidence;  // by step
};

v1::Batch Begin(const Content& content, int64_t step, int64_t next) {
  v1::Batch batch = test::BatchOf(content.source);
  test::AddProgress(&batch, step).set_newest_step(next);
  return batch;
}

void AddFirst(const Content& content, v1::Batch& batch) {
  for (const v1::Loss* loss : content.losses) {
    *batch.add_losses() = *loss;
    batch.mutable_losses()->rbegin()->set_source(0);
  }
  for (const v1::SiteDeclaration* declaration : content.declarations) {
    *batch.add_declarations() = *declaration;
    batch.mutable_declarations()->rbegin()->set_source(0);
  }
}

}  // namespace

std::vector<v1::Batch> Stepwise(const std::vector<v1::Batch>& batches) {
  std::map<SourceKey, Content> sources;
  std::map<uint32_t, std::set<int64_t>> steps;  // by attempt
  for (const v1::Batch& batch : batches) {
    const auto content = [&](uint32_t index) -> Content& {
      const v1::Source& source = batch.sources(static_cast<int>(index));
      Content& found = sources[{source.attempt(), source.SerializeAsString()}];
      found.source = source;
      return found;
    };
    for (int i = 0; i < batch.sources_size(); ++i) content(static_cast<uint32_t>(i));
    for (const v1::Loss& loss : batch.losses()) content(loss.source()).losses.push_back(&loss);
    for (const v1::SiteDeclaration& declaration : batch.declarations())
      content(declaration.source()).declarations.push_back(&declaration);
    for (const v1::Evidence& evidence : batch.evidence()) {
      Content& of = content(evidence.source());
      of.evidence[evidence.step()].push_back(&evidence);
      steps[of.source.attempt()].insert(evidence.step());
    }
  }
  std::vector<v1::Batch> out;
  std::set<SourceKey> begun;
  for (auto& [key, content] : sources) steps.try_emplace(key.first, std::set<int64_t>{0});
  for (const auto& [attempt, of_attempt] : steps) {
    for (auto step = of_attempt.begin(); step != of_attempt.end(); ++step) {
      const int64_t next = std::next(step) == of_attempt.end() ? *step + 1 : *std::next(step);
      for (const auto& [key, content] : sources) {
        if (key.first != attempt) continue;
        v1::Batch batch = Begin(content, *step, next);
        if (begun.insert(key).second) AddFirst(content, batch);
        const auto found = content.evidence.find(*step);
        if (found != content.evidence.end()) {
          for (const v1::Evidence* evidence : found->second) {
            *batch.add_evidence() = *evidence;
            batch.mutable_evidence()->rbegin()->set_source(0);
          }
        }
        out.push_back(std::move(batch));
      }
    }
  }
  return out;
}

}  // namespace plumbline::rules::testing

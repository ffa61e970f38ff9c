// A library that only the stand-in agent needs. The trainer (scenarios.cc) exports the same name.
extern "C" __attribute__((visibility("default"))) const char* test_dependency_owner() {
  return "agent";
}

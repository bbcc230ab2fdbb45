// Over which transport, and with or without a thread of its own, a LogWriter is tried.
#pragma once

#include <gtest/gtest.h>
#include <perdure/profile.h>

#include <string>

namespace perdure::server {

struct WriterSetup {
  Transport transport = Transport::Tcp;
  bool own_thread = false;
};

/// For INSTANTIATE_TEST_SUITE_P: the set-ups, and their names.
inline auto writer_setups() {
  return testing::Values(WriterSetup{Transport::Tcp, false}, WriterSetup{Transport::Tcp, true},
                         WriterSetup{Transport::Shm, false});
}
inline std::string name_of_setup(const testing::TestParamInfo<WriterSetup>& each) {
  return std::string(to_string(each.param.transport)) +
         (each.param.own_thread ? "_with_a_thread" : "");
}

}  // namespace perdure::server

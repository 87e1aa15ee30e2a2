# `cmake --install`: the library, its headers, the tool, and a package for find_package(fewbit).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(FEWBIT_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/fewbit)
install(TARGETS fewbit EXPORT fewbit_targets ARCHIVE INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/fewbit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT fewbit_targets FILE fewbitTargets.cmake NAMESPACE fewbit:: DESTINATION ${FEWBIT_PACKAGE_DIR})
configure_package_config_file(cmake/fewbitConfig.cmake.in ${PROJECT_BINARY_DIR}/fewbitConfig.cmake
  INSTALL_DESTINATION ${FEWBIT_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fewbitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fewbitConfig.cmake ${PROJECT_BINARY_DIR}/fewbitConfigVersion.cmake
  DESTINATION ${FEWBIT_PACKAGE_DIR})

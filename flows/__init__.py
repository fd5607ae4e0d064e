"""The Prefect flows. Nothing else of the project imports prefect."""
